"""Options of a designer that talks to a language model: which one, how it is reached, and what it may cost."""

from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from curricle.records import Options


class ModelOptions(Options):
    """A model and its budget. The key is never an option: only the name of the environment variable that holds it."""

    model: str = Field(
        "", description="A model's name at the endpoint, or hand, replay:RUN, local; empty: as the environment says."
    )
    base_url: str = Field("", description="Base URL of an OpenAI-compatible endpoint; empty: OpenAI's own.")
    key_env: str = Field(
        "",
        description="Name of the variable with the key; empty: OPENAI_API_KEY at OpenAI, none elsewhere.",
    )
    temperature: float = Field(0.0, ge=0, le=2, description="Sampling temperature.")
    max_tokens: int = Field(8_192, ge=1, description="Longest reply, in tokens.")
    timeout: float = Field(180.0, gt=0, description="Seconds after which a call is given up, however it drips.")
    retries: int = Field(5, ge=0, description="How often a call that failed is made again.")
    backoff: float = Field(1.0, ge=0, description="Seconds before the first retry; twice as long before each next.")
    calls: int = Field(200, ge=0, description="Budget of the whole run: calls, failed ones included.")
    tokens: int = Field(2_000_000, ge=0, description="Budget of the whole run: tokens, read and written.")
    dollars: float = Field(0.0, ge=0, description="Budget of the whole run in dollars; 0: none. Needs the prices.")
    price_in: float = Field(0.0, ge=0, description="Dollars for a million tokens read.")
    price_out: float = Field(0.0, ge=0, description="Dollars for a million tokens written.")
    cache: str = Field(
        "", description="Folder of answers that serve the same prompt again; 'user': the user's cache; empty: none."
    )

    @model_validator(mode="after")
    def _without_secrets(self) -> Self:
        """Refuse what cannot be used; a value that may hold a key is not repeated in the message."""
        try:
            parts = urlsplit(self.base_url)
            usable = not self.base_url or (parts.scheme in ("http", "https") and bool(parts.hostname))
        except ValueError:
            raise ValueError("base_url: write an address such as http://localhost:8000/v1") from None
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("base_url: it is kept in files and may hold no key; name the key's variable with key_env")
        if not usable:
            raise ValueError("base_url: write an address such as http://localhost:8000/v1")
        name = self.key_env or "OPENAI_API_KEY"
        if not (name.isidentifier() and name.isascii() and name.upper() == name):
            raise ValueError("key_env: write the name of an environment variable, such as OPENAI_API_KEY, not a key")
        if self.dollars and not (self.price_in or self.price_out):
            raise ValueError("dollars: a budget of money needs price_in and price_out")
        return self
