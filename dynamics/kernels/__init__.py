"""Compiled code: how functions are compiled and cached, views of flat arrays, and products of matrices."""
