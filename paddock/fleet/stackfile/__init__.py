"""From a stack file to the model, with the position of every value and mistake."""
