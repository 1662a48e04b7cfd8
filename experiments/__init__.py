"""The experiments of the paper, one file each; figures and tables come from here only."""
