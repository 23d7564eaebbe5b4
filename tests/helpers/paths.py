"""Where the repository lies, and what tests name by path."""

from pathlib import Path

HELPERS = Path(__file__).parent
ROOT = HELPERS.parent.parent
LADDER = f"{HELPERS}/toys.py:Ladder"
CHATTY = f"{HELPERS}/toys.py:Chatty"
STUDENT = f"{HELPERS}/toys.py:Student"
PICK = f"{HELPERS}/tiny_model.py:Pick"
VAULT = f"{ROOT}/examples/vault.py:Vault"
