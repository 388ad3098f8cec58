"""One file per implementation, its package imported on first use.

Every adapter has one signature:

    attend(query, key, value, mask=None, causal=False, softmax_scale=None) -> Tensor

query [batch, query_len, heads, head_dim], key and value [batch, kv_len, kv_heads, head_dim], mask
broadcastable to [batch, heads, query_len, kv_len] (boolean, true attends; or additive) or None,
softmax_scale None for head_dim**-0.5. It returns [batch, query_len, heads, value_head_dim] and
leaves the caller's tensors as they are. It computes; what it cannot compute is a need of its row.
"""
