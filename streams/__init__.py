"""Move data: the Faust app, one stage a file, the trainer, the embedded stack."""
