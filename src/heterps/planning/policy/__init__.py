"""The learned policy: features of a problem, a recurrent network, sampling in numpy."""
