from tests.lora import base_folder, make_lora

__all__ = ["base_folder", "make_lora"]
