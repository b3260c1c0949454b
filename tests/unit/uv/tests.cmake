loco_unit(uv shell loco_uv)
