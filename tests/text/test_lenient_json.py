"""JSON as models write it: any text can be read, and proper JSON is read as JSON."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from curricle.text.lenient_json import read_all

JSONISH = st.text(alphabet="{}[](),:;=\"'`\\/*# \n\tabfrogs_019.-+eETrueNone\u201c\u201d\ud83dé", max_size=300)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
LISTS = st.lists(SCALARS, max_size=4) | st.dictionaries(st.text(), SCALARS, max_size=4)
NESTED = st.dictionaries(st.text(), SCALARS | LISTS | st.lists(LISTS, max_size=3), max_size=4)


@settings(max_examples=100)
@given(NESTED)
def test_proper_json_is_read_as_json(value):
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert list(read_all(text)) == [value]


@settings(max_examples=400)
@given(JSONISH)
def test_any_text_is_read_as_objects_and_lists(text):
    for value in read_all(text):
        assert isinstance(value, dict | list)
