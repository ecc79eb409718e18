"""The trainer that distillation, QAT and repairs share."""
