"""Images of an evaluation: curves (extra `plots`), contact sheets of mistakes, boxes drawn into images."""
