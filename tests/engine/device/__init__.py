"""Tests of the decoder for GPUs, none of which needs one."""
