"""How replies are drawn: sampling, decoding in fixed shapes, and kernels for it."""
