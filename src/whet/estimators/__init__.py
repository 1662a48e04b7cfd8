"""Learners on response matrices: greedy sparse LDA, boosting. Never on images."""
