CREATE TABLE public.watchers (person text);
