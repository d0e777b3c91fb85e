"""Have a person read what advice says to failing calls of real logs, and what the best-ranked items say."""
