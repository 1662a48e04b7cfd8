"""The paper's family: cascades of weak learners selected by greedy sparse LDA."""
