"""Files: folders of small text files."""

from collections.abc import Callable, Mapping

from curricle.worlds.text.tools.calls import Call
from curricle.worlds.text.tools.schema import Json, shown, tool
from curricle.worlds.text.tools.simulators.base import Chore, Draw, Question, Refused, Simulator, State, variants

FOLDERS = variants(
    "letters|photos|recipes|invoices|music|travel|school|archive|drafts|garden|taxes|sports|"
    "health|pets|house|poems|maps|games|receipts|backups|videos|family|work|theatre"
)
STEMS = variants("plan|notes|list|report|budget|summary|ideas|menu|contract|diary|songs|route")
TOPICS = variants("apples|bicycles|castles|dolphins|engines|forests|glaciers|harbours|islands|jazz|kites|lanterns")
ADJECTIVES = variants("rusty|golden|tiny|silent|ancient|wooden|frozen|striped|hollow|gentle|crooked|famous")
VERBS = variants("drift|whisper|burn|sleep|vanish|return|multiply|shine|wander|collapse|dance|melt")


class Files(Simulator):
    """State: {"folders": {folder: {file: text}}}."""

    name = "files"
    tools = (
        tool("list_folders", "List all folders.", {}),
        tool("list_files", "List the files of a folder.", {"folder": "string"}),
        tool("read_file", "Show the text of a file.", {"folder": "string", "file": "string"}),
        tool("make_folder", "Make an empty folder.", {"folder": "string"}),
        tool("write_file", "Write a text into a new file.", {"folder": "string", "file": "string", "text": "string"}),
        tool(
            "move_file",
            "Move a file to another folder.",
            {"file": "string", "from_folder": "string", "to_folder": "string"},
        ),
        tool("delete_file", "Delete a file.", {"folder": "string", "file": "string"}),
    )

    def start(self, draw: Draw) -> State:
        """Three folders, two or three files in each; no name stands twice, and texts share no word with each other.

        No word is in all texts: otherwise an answer with it would earn something without a look at the file.
        """
        stems = draw.sample(draw.side(STEMS) * 3, 9)
        names = iter(f"{stem}_{draw.integer(10, 99)}{i}.txt" for i, stem in enumerate(stems))
        texts = zip(*(draw.sample(part, 9) for part in (ADJECTIVES, TOPICS, VERBS)), strict=True)
        says = (f"{adjective.capitalize()} {topic} {verb}." for adjective, topic, verb in texts)
        folders = draw.sample(draw.side(FOLDERS), 3)
        return {"folders": {folder: {next(names): next(says) for _ in range(draw.integer(2, 3))} for folder in folders}}

    def methods(self) -> Mapping[str, Callable[..., Json]]:
        """The seven tools."""
        return {
            "list_folders": lambda state: list(state["folders"]),
            "list_files": lambda state, folder: list(_folder(state, folder)),
            "read_file": lambda state, folder, file: _text(state, folder, file),
            "make_folder": _make_folder,
            "write_file": _write,
            "move_file": _move,
            "delete_file": _delete,
        }

    def chore(self, state: State, draw: Draw) -> Chore:
        """Move, delete, write, or put into a new folder; for some, files have to be read first."""
        places = [(folder, file) for folder, files in state["folders"].items() for file in files]
        if len(places) < 2 or not (kind := draw.integer(0, 4)):
            return self._write_note(state, draw)
        folder, file = draw.choice(places)
        if kind == 1:
            request = draw.phrase(
                "delete {0} in {1}|remove {0} from {1}|erase {0} in {1}|get rid of {0} in {1}", file, folder
            )
            return Chore(request, (Call("delete_file", {"folder": folder, "file": file}),))
        if kind == 2:
            return self._read_and_delete(state, draw, folder)
        fresh = [name for name in draw.side(FOLDERS) if name not in state["folders"]]
        if kind == 3 and fresh:
            new = draw.choice(fresh)
            request = draw.phrase(
                "make a folder {2} and move {0} from {1} into it|put {0} of {1} into a new folder {2}|"
                "{0} of {1} needs a folder of its own, {2}|open a folder {2}; it shall hold {0} instead of {1}",
                *(file, folder, new),
            )
            return Chore(request, (Call("make_folder", {"folder": new}), _moving(file, folder, new)))
        other = draw.choice([name for name in state["folders"] if name != folder])
        request = draw.phrase(
            "move {0} from {1} to {2}|put {0}, which is in {1}, into {2}|shift {0} out of {1} into {2}|"
            "let {2} have the file {0} of {1}",
            *(file, folder, other),
        )
        return Chore(request, (_moving(file, folder, other),))

    def _write_note(self, state: State, draw: Draw) -> Chore:
        folder = draw.choice(list(state["folders"]))
        file = f"{draw.name(STEMS)}_{draw.integer(100, 999)}_new.txt"
        text = f"Buy {draw.name(TOPICS)}"
        request = draw.phrase(
            "write '{2}' into a new file {1} in {0}|make a file {1} in {0} that says '{2}'|"
            "{0} gets a file {1} with '{2}' in it|leave a note {1} in {0} with the text '{2}'",
            *(folder, file, text),
        )
        return Chore(request, (Call("write_file", {"folder": folder, "file": file, "text": text}),))

    def _read_and_delete(self, state: State, draw: Draw, folder: str) -> Chore:
        file, text = draw.choice(list(state["folders"][folder].items()))
        reads = [Call("read_file", {"folder": folder, "file": name}) for name in state["folders"][folder]]
        request = draw.phrase(
            "delete the file in {0} whose text is '{1}'|find the file of {0} that says '{1}' and delete it|"
            "in {0}, the file with the text '{1}' must go|one file in {0} reads '{1}': remove it",
            *(folder, text),
        )
        last = Call("delete_file", {"folder": folder, "file": file})
        return Chore(request, (Call("list_files", {"folder": folder}), *reads, last))

    def question(self, state: State, draw: Draw) -> Question:
        """Where a file is, or what it says."""
        folder = draw.choice([name for name, files in state["folders"].items() if files])
        file = draw.choice(list(state["folders"][folder]))
        if draw.integer(0, 1):
            request = draw.phrase(
                "Which folder is {0} in?|Where is the file {0}: in which folder?|Find the folder of {0}.|"
                "I lost {0}. What is the name of its folder?",
                file,
            )
            listings = [Call("list_files", {"folder": name}) for name in state["folders"]]
            return Question(request, (Call("list_folders", {}), *listings), folder)
        request = draw.phrase(
            "What does {0} in {1} say?|Read {0} in {1} to me, word by word.|What is the text of {0} in {1}?|"
            "Tell me all that is written in {0}, a file in {1}.",
            *(file, folder),
        )
        read = Call("read_file", {"folder": folder, "file": file})
        return Question(request, (read,), state["folders"][folder][file])


def _moving(file: str, source: str, target: str) -> Call:
    return Call("move_file", {"file": file, "from_folder": source, "to_folder": target})


def _folder(state: State, folder: str) -> dict[str, str]:
    if folder not in state["folders"]:
        raise Refused(f"there is no folder {shown(folder)}")
    found: dict[str, str] = state["folders"][folder]
    return found


def _text(state: State, folder: str, file: str) -> str:
    if file not in _folder(state, folder):
        raise Refused(f"there is no file {shown(file)} in {folder}")
    return _folder(state, folder)[file]


def _make_folder(state: State, folder: str) -> str:
    if folder in state["folders"]:
        raise Refused(f"{folder} exists already")
    state["folders"][folder] = {}
    return "done"


def _write(state: State, folder: str, file: str, text: str) -> str:
    if file in _folder(state, folder):
        raise Refused(f"{file} exists already")
    state["folders"][folder][file] = text
    return "done"


def _move(state: State, file: str, from_folder: str, to_folder: str) -> str:
    text = _text(state, from_folder, file)
    _write(state, to_folder, file, text)
    del state["folders"][from_folder][file]
    return "done"


def _delete(state: State, folder: str, file: str) -> str:
    _text(state, folder, file)
    del state["folders"][folder][file]
    return "done"
