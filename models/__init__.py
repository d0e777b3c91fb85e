"""Learn from sessions: judge, distiller, trainer, gate."""
