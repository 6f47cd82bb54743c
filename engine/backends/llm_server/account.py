"""The account of K/V that LLM servers have cached: blocks without memory.

It follows from what the servers were sent, and bounds nothing: what a server has no room for it
evicts or computes again by itself. So the account grows, and neither refuses a session nor fails an
answer. `LlmServerConfig.sessions` bounds how many sessions a server gets.
"""

from __future__ import annotations

from headstart.engine.kvcache.block_pool import BlockPool


class AccountPool(BlockPool):
    """A `BlockPool` that grows when it has no free block. A block takes some 100 bytes, for
    `block_size` tokens that a stream holds in any case."""

    grows = True

    def allocate(self, count: int) -> list[int]:
        """Allocate `count` blocks with one reference each."""
        missing = count - self.free_blocks
        if missing > 0:
            before = self.num_blocks
            self.num_blocks += max(missing, before // 2)
            self._references += [0] * (self.num_blocks - before)
            self._free[:0] = range(self.num_blocks - 1, before - 1, -1)
        return super().allocate(count)
