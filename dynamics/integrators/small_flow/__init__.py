"""The stiff method for small flows: one compiled loop over steps, with the whole field at every stage."""
