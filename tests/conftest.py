"""What all tests share: on a busy machine an example of hypothesis may take its time."""

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
