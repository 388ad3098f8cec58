"""Float64 definitions of attention that every kernel is compared with. They import torch."""
