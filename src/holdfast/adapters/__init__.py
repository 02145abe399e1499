"""Where Holdfast meets what agents are written with. Nothing here imports a provider's package or a framework."""
