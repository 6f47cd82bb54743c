"""The C code on 64-bit Arm: cross-compiled, and run under qemu's emulation (`make test-arm`)."""
