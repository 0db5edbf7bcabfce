"""Views on the inputs of resources that several rules share: fields, pods, placement, files. No rule is here."""
