"""The parameter server: tables of rows by 64-bit id, with the optimizer inside."""
