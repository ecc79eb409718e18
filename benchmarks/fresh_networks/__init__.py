"""Small multi-head networks, trained in minutes, that framefit was never tuned to.

`python -m benchmarks.fresh_networks` renders roads, trains five networks on them and writes each as
`float.onnx`, `calib.npz` and `held.npz` under out/fresh, as `benchmarks.peers --own` reads them.
They differ where quantizers differ: trunks from timm of five families, necks, normalizations,
activations, ways to enlarge, decoders inside the file. A minute of training gives weights with the
channels and ranges of trained ones, not good networks: what is judged is how near a file stays.
"""
