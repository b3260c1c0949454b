loco_unit(daemon trainer loco_daemon)
