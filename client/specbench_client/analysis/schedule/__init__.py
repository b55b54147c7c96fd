"""Which draft length pays at which batch size, from step costs and acceptance, and how engines take it. Pure."""
