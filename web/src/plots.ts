// Lines over time. Loaded with the Monitor.
import uPlot from 'uplot';
import { bytes, clock, short } from './format';
import type { Field } from './telemetry';

export const kColours = ['--line-1', '--line-2', '--line-3', '--line-4', '--line-5', '--line-6'];

export const inBytes = (unit: string): boolean => unit === 'B' || unit === 'bytes' || unit === 'B/s';

export function valueText(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined) return '–';
  if (inBytes(unit)) return unit.endsWith('/s') ? `${bytes(value)}/s` : bytes(value);
  return unit === '' ? short(value) : `${short(value)} ${unit}`;
}

export class Plot {
  private plot: uPlot | undefined;
  private readonly watcher: ResizeObserver;
  private data: uPlot.AlignedData = [[]];

  constructor(
    private readonly root: HTMLElement,
    private readonly fields: Field[],
    private span: number, // seconds shown
  ) {
    this.build();
    this.watcher = new ResizeObserver(() => this.plot?.setSize({ width: this.width(), height: kHeight }));
    this.watcher.observe(root);
  }

  // With the colours of the theme as it is now.
  build(): void {
    this.plot?.destroy();
    const style = getComputedStyle(this.root);
    const colour = (name: string) => style.getPropertyValue(name).trim();
    const unit = this.fields[0]?.unit ?? '';
    const whole = inBytes(unit);
    const axis: uPlot.Axis = {
      stroke: colour('--dim'),
      font: '11px system-ui, sans-serif',
      grid: { stroke: colour('--line'), width: 1 },
      ticks: { show: false },
    };
    this.plot = new uPlot(
      {
        width: this.width(),
        height: kHeight,
        legend: { show: false },
        cursor: { y: false, points: { size: 6 } },
        scales: {
          x: { range: (_plot, _least, most) => [(most ?? 0) - this.span, most ?? 0] },
          y: { range: (_plot, least, most) => [Math.min(0, least ?? 0), most > 0 ? most * 1.1 : 1] },
        },
        axes: [
          { ...axis, size: 24, space: 84, values: (_plot, values) => values.map((value) => clock(value * 1000, this.span <= 600)) },
          {
            ...axis,
            size: whole ? 62 : 44,
            space: 28,
            ...(whole ? { incrs: kBinary } : {}),
            values: (_plot, values) => values.map((value) => (whole ? bytes(value) : short(value))),
          },
        ],
        series: [
          {},
          ...this.fields.map((field, index) => ({
            label: field.name,
            stroke: colour(kColours[index % kColours.length] ?? '--line-1'),
            width: 1.6,
            spanGaps: false,
            points: { show: false },
          })),
        ],
      },
      this.data,
      this.root,
    );
  }

  update(data: uPlot.AlignedData, span: number): void {
    this.data = data;
    this.span = span;
    this.plot?.setData(data);
  }

  destroy(): void {
    this.watcher.disconnect();
    this.plot?.destroy();
  }

  private width(): number {
    return Math.max(200, this.root.clientWidth);
  }
}

const kHeight = 150;
const kBinary = Array.from({ length: 50 }, (_, power) => 2 ** power);
