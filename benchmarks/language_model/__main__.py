"""Run the command: `python -m benchmarks.language_model DIR`."""

from benchmarks.language_model.command import app

if __name__ == "__main__":
    app()
