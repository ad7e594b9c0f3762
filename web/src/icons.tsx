// Line icons, drawn on 20 x 20. They say nothing themselves: buttons carry the words.

const paths = {
  layers: 'M10 3 2.5 6.8 10 10.6l7.5-3.8L10 3ZM2.5 10.2 10 14l7.5-3.8M2.5 13.4 10 17.2l7.5-3.8',
  plus: 'M10 4v12M4 10h12',
  search: 'M9 3.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11Zm4 9.5 3.5 3.5',
  send: 'M10 16V4M5 9l5-5 5 5',
  stop: 'M5.5 5.5h9v9h-9z',
  redo: 'M15.5 6.5A6.5 6.5 0 1 0 16.5 11M16 3v4h-4',
  edit: 'M4 13.5V16h2.5L15 7.5 12.5 5 4 13.5Z',
  copy: 'M7 7h9v9H7zM4 13V4h9',
  left: 'M12 5l-5 5 5 5',
  right: 'M8 5l5 5-5 5',
  down: 'M5 8l5 5 5-5',
  clip: 'M14.5 9.5 9 15a3 3 0 0 1-4.2-4.2l6.4-6.4a2 2 0 0 1 2.9 2.9l-6.2 6.1a1 1 0 0 1-1.4-1.4L12 6.6',
  sliders: 'M4 6h7M15 6h1M4 14h1M9 14h7M13 4v4M7 12v4',
  sun: 'M10 6.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7ZM10 2v1.5M10 16.5V18M2 10h1.5M16.5 10H18M4.3 4.3l1.1 1.1M14.6 14.6l1.1 1.1M15.7 4.3l-1.1 1.1M5.4 14.6l-1.1 1.1',
  moon: 'M16.5 11.5A7 7 0 0 1 8.5 3.5a6.8 6.8 0 1 0 8 8Z',
  auto: 'M3 4.5h14v9H3zM7.5 16.5h5M10 13.5v3',
  menu: 'M3.5 6h13M3.5 10h13M3.5 14h13',
  close: 'M5 5l10 10M15 5 5 15',
  trash: 'M4 6h12M8 6V4h4v2M5.5 6l.7 10h7.6l.7-10',
  download: 'M10 3.5v9M6 9l4 4 4-4M4 16.5h12',
  upload: 'M10 13V4M6 7.5l4-4 4 4M4 16.5h12',
  tool: 'M13.5 3.8a3.7 3.7 0 0 0-3.9 5L4 14.4 5.6 16l5.6-5.6a3.7 3.7 0 0 0 5-3.9l-2.3 2.2-2-2 1.6-2.9Z',
  check: 'M4.5 10.5 8.5 14.5 15.5 6',
};

export type IconName = keyof typeof paths;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 20 20" aria-hidden="true" focusable="false">
      <path d={paths[name]} />
    </svg>
  );
}
