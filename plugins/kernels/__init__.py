"""Attention kernels in the Triton language, compiled ahead of time into the engines that need them.

``rotary_kv_write`` stores the step's keys and values, ``paged_attention`` attends over the cache and, where the
context was split among programs, ``combine_splits`` joins the parts. ``shape.py`` holds what a kernel is compiled
for, ``launch.py`` how the three are launched. Importing this package needs nothing; its kernels need ``triton``.

A row's result depends on that row and its context alone: every row meets the same tiles of the context, aligned to
position 0, in the same order, and tiles in which a row sees nothing leave it as it is. One compiled kernel serves
prompt and decode rows, and a context walked by one program or by one program for each split gives the same bits.
"""
