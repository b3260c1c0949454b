loco_unit(uv shell loco_uv)
loco_unit(uv bulk loco_uv)
loco_unit(uv threads loco_uv)
