// Runs before anything is drawn: the chosen theme.
try {
  const theme = (JSON.parse(localStorage.getItem('strata.preferences') ?? '{}') as { theme?: string }).theme;
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch {
  // As the system has it.
}

export {};
