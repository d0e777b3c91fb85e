"""What is learned: judge, distiller, trainer, gate."""
