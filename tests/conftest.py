import os
import sys
from pathlib import Path

from hypothesis import settings

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
for name in [name for name in os.environ if name.startswith(("CURRICLE_", "OPENAI_"))]:
    del os.environ[name]  # no test may talk to an endpoint that somebody configured for other things
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"  # nor to a hub, from a thread that lives on

settings.register_profile("same", deadline=None, derandomize=True)  # a busy machine and luck decide nothing
settings.load_profile("same")
