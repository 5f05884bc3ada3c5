REVOKE INSERT ON public.river_job FROM bothy_app;
