"""The coupled overlap flow on inputs that are not isotropic."""
