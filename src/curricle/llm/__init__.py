"""Language models: clients that designers talk to, models that are trained, decoding, and the embedded model."""
