"""What a designer can talk to; the contract is `llm/client.py`."""
