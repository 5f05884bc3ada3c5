CREATE TABLE public.watchers (person text, types text[]);
