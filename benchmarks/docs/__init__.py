"""Write what pages of docs/ show: reference tables, the plan's arithmetic, pictures of a terminal."""
