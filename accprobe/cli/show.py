"""`accprobe show`: render a report."""

from __future__ import annotations

import click


@click.command()
@click.argument("report")
@click.argument("instruction", required=False)
@click.option("--format", "form", type=click.Choice(["terminal", "json"]), default="terminal", show_default=True)
@click.option("--all", "expand", is_flag=True, help="One line an instruction, like ones too.")
def show(report: str, instruction: str | None, form: str, expand: bool) -> None:
    """Show a REPORT, a file or the name of a recorded one; with INSTRUCTION, a name or glob, everything about those.

    \b
    Examples:
      accprobe show report.json
      accprobe show report.json wgmma.m64n8k32.f32.e4m3.e4m3
    """
    from accprobe.errors import UnknownName, nearest
    from accprobe.report import Report

    loaded = Report.load(report)
    if instruction:
        from accprobe.survey import matching

        names = [row.name for row in loaded.instructions]
        chosen = set(matching(names, instruction))
        if not chosen:
            raise UnknownName(f"{report} has no instruction '{instruction}'; {nearest(instruction, names)}")
        rows = tuple(row for row in loaded.instructions if row.name in chosen)
        loaded = loaded.model_copy(update={"instructions": rows})
    if form == "json":
        click.echo(loaded.dumps(), nl=False)
        return
    from accprobe.render.detail import detail
    from accprobe.render.terminal import console, table, title

    out = console()
    if not instruction:
        if loaded.instructions or not loaded.sweeps:
            out.print(table(loaded, out.width, expand))
        else:
            out.print(title(loaded))
        if loaded.sweeps:
            from accprobe.render.sweeps import sweeps

            out.print("", sweeps(loaded.sweeps, out.width, expand, loaded.device.kind == "simulated"), sep="\n")
        return
    for i, row in enumerate(loaded.instructions):
        out.print(*([""] if i else []), detail(row), sep="\n")
