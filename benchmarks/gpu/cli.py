"""`headstart bench gpu`, as its command line has it."""

from __future__ import annotations

import typer


def gpu(
    dry_run: bool = typer.Option(False, "--dry-run", help="print what would run; needs no GPU"),
    device: str = typer.Option("cuda", help="cuda, cuda:N, or cpu to try the command out"),
    model: str = typer.Option(
        "", help="kernels, perception, small, 3b, 7b, qwen2-vl-7b, tiny, tiny-packed"
    ),
    sessions: str = typer.Option("1,8,32", help="numbers of live sessions"),
    seconds: float = typer.Option(6.0, help="of each number of sessions"),
    out: str = typer.Option("", help="file with all that is known after each stage"),
    as_json: bool = typer.Option(False, "--json", help="nothing but the JSON line on stdout"),
) -> None:
    """A GPU: the Triton kernels, right and then fast, and engines with live sessions."""
    from headstart.benchmarks.gpu import command, kernels

    try:
        options = command.options_of(device, model, sessions, seconds, out)
        code = (command.show if dry_run else command.measure)(options, as_json)
    except (kernels.NoGpuError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    raise typer.Exit(code)
