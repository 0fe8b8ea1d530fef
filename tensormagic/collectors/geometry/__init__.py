"""Integers alone: strides, storages, overlaps, and the cells that pictures are made of."""
