"""The rules of Crafter and the state of an environment."""
