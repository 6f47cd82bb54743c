"""Files of weights: GGUF, safetensors, CTranslate2. Headers are checked, tensors are mapped and
cost memory only when they are asked for.

May import: `errors`.
Never: knows which model it reads, apart from a decoder's sizes (`decoder_spec`).
"""
