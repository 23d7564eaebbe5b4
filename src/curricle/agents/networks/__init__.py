"""Networks for images, symbols and numbers."""
