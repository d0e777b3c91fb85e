"""Merge what sessions teach into memory items.

judged session ──distil──▶ Candidate   one session's contribution to one item    models.distil, models.memory.candidate
Candidates     ──merge───▶ ItemState   all contributions, in any order           models.memory.item_state
ItemState      ──to_item─▶ MemoryItem  what agents recall, unless it is junk     models.memory.candidate
"""
