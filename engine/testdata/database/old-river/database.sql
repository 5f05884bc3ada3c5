DELETE FROM public.river_migration WHERE version > 6;
