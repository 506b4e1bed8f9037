"""Reductions with scalar functions around a sum, or around a mean and a variance: rms_norm, softmax, layer_norm, losses."""
